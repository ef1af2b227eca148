// Slow is the slow path of a post office (../programs/post.c): it knows where areas are, and the packet program learns
// it.
//
//	slow AREA=INTERFACE...
//
// A letter to an area for which there is no filter is punted. It gets a filter, and enters the program again; those
// that follow are not punted any more. slow.c and slow.py do the same.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/pergola-net/pergola/sdk/message"
	"github.com/pergola-net/pergola/sdk/node"
)

const letter = 0x88b5 // the type of their Ethernet frames

func main() {
	log.SetFlags(0)
	log.Fatal(run(context.Background(), os.Args[1:]))
}

// run serves until something fails.
func run(ctx context.Context, routes []string) error {
	interfaces := map[byte]int{}
	for _, route := range routes {
		var area byte
		var number int
		if _, err := fmt.Sscanf(route, "%d=%d", &area, &number); err != nil {
			return fmt.Errorf("%q is not AREA=INTERFACE: %w", route, err)
		}
		interfaces[area] = number
	}
	n, err := node.Open(ctx)
	if err != nil {
		return err
	}
	if err := n.ReplaceFilters(ctx, nil); err != nil {
		return err
	}
	slow, err := n.SlowPath(ctx)
	if err != nil {
		return err
	}
	return serve(ctx, n, slow, interfaces)
}

func serve(ctx context.Context, n *node.Node, slow *node.SlowPath, interfaces map[byte]int) error {
	buffer := make([]byte, 1<<16)
	for {
		p, err := slow.ReadPunt(buffer)
		if err != nil {
			return err
		}
		if len(p.Frame) < 14 || binary.BigEndian.Uint16(p.Frame[12:]) != letter {
			continue
		}
		area := p.Key[0]
		number, there := interfaces[area]
		if !there {
			fmt.Println("nobody knows where area", area, "is")
			continue
		}
		filter := fmt.Sprintf("area=%d -> send %d", area, number)
		err = n.ChangeFilters(ctx, nil, []string{filter})
		var refused *node.Error
		// Of two letters that were punted, the first one's filter is there.
		if err != nil && (!errors.As(err, &refused) || refused.Code != message.Exists) {
			return err
		}
		fmt.Println("area", area, "is at interface", number)
		if err := slow.Enter(p.Interface, p.Frame); err != nil {
			return err
		}
	}
}
