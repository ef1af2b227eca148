package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Rule says which class of a qdisc frames wait in that enter a link at a port. Of a port's rules, the first counts that
// matches.
type Rule struct {
	Class uint32 // major and minor number
	Match
}

// MaxRules bounds the rules of a port.
const MaxRules = len(objectClassifier{}.Rules)

// SetRules writes the rules of a port, all at once; none: they are deleted. Whether they are asked the port's record
// says.
func (d *DataPath) SetRules(ifindex int, rules []Rule) error {
	if len(rules) == 0 {
		if err := d.maps.Classifiers.Delete(uint32(ifindex)); err != nil &&
			!errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete rules of port %d: %w", ifindex, err)
		}
		return nil
	}
	if len(rules) > MaxRules {
		return fmt.Errorf("write rules of port %d: %d of them, at most %d", ifindex, len(rules), MaxRules)
	}
	c := objectClassifier{Number: uint64(len(rules))}
	for i, r := range rules {
		c.Rules[i] = r.Match.object(r.Class)
	}
	if err := d.maps.Classifiers.Put(uint32(ifindex), c); err != nil {
		return fmt.Errorf("write rules of port %d: %w", ifindex, err)
	}
	return nil
}

// Rules reads the rules of a port.
func (d *DataPath) Rules(ifindex int) ([]Rule, error) {
	var c objectClassifier
	err := d.maps.Classifiers.Lookup(uint32(ifindex), &c)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read rules of port %d: %w", ifindex, err)
	}
	return rulesOf(&c), nil
}

func rulesOf(c *objectClassifier) []Rule {
	rules := make([]Rule, min(int(c.Number), MaxRules))
	for i := range rules {
		rules[i] = Rule{c.Rules[i].Class, matchOf(c.Rules[i])}
	}
	return rules
}
