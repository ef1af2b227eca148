package wire

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/node"
	"github.com/pergola-net/pergola/model/constants"
	"github.com/pergola-net/pergola/model/slice"
)

// fastPathPart is what packet programs may take of the machine's processor time. The rest is for what the kernel does
// with their frames before and after, which is about as much, and for everybody else.
const fastPathPart = 0.5

// What the queues of packet programs may take: a class of HTB with its leaf is 2 KiB of the kernel's memory, and what
// waits in all of them is a quarter of the machine's memory at most. A part of both is the pool of nodes without a
// reservation (slice.Reserve.Pool).
const (
	maxQueues  = 1 << 15
	bufferPart = 4
)

func fastPathCores() float64 { return fastPathPart * float64(runtime.NumCPU()) }

// Reservable is what nodes of a machine can reserve, beside cores and memory.
func Reservable() slice.Reserve {
	var has unix.Sysinfo_t
	_ = unix.Sysinfo(&has) // fails only where the pointer is wrong
	buffer := int64(has.Totalram) * int64(has.Unit) / bufferPart
	const rest = constants.PoolPart - 1
	return slice.Reserve{
		Filters: node.ReservableFilters, Masks: node.ReservableMasks,
		FastPath: node.ReservableTime(fastPathCores()),
		Queues:   rest * (maxQueues / constants.PoolPart), Buffer: rest * (buffer / constants.PoolPart),
	}
}
