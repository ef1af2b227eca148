package wire

import "testing"

func TestAQuarterOfTheQueuesIsThePool(t *testing.T) {
	r := Reservable()
	pool := r.Pool()
	if 4*pool.Queues != maxQueues || r.Queues+pool.Queues != maxQueues {
		t.Errorf("of %d queues %d are the pool, and %d can be reserved", maxQueues, pool.Queues, r.Queues)
	}
	if pool.Buffer == 0 || r.Buffer != 3*pool.Buffer {
		t.Errorf("%d bytes of buffer are the pool, and %d can be reserved", pool.Buffer, r.Buffer)
	}
}
