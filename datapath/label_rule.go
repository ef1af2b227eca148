package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// LabelRule gives frames the labels of an FTN because of what they are, whatever their route (bpf/label_rule.h).
type LabelRule struct {
	FTN uint32
	Match
}

// MaxLabelRules bounds the rules of a label space.
const MaxLabelRules = len(objectLabelClassifier{}.Rules)

// SetLabelRules writes the rules of a label space, all at once; none: they are deleted. Of those that match, the first
// one counts whose FTN is set, and leads elsewhere than to where the frame came from. A router asks them where the
// mirror says so (fib.Router.SetLabelSpace).
func (d *DataPath) SetLabelRules(space uint32, rules []LabelRule) error {
	if len(rules) == 0 {
		if err := d.maps.LabelRules.Delete(space); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete rules of label space %#x: %w", space, err)
		}
		return nil
	}
	if len(rules) > MaxLabelRules {
		return fmt.Errorf("write rules of label space %#x: %d of them, at most %d", space, len(rules),
			MaxLabelRules)
	}
	o := objectLabelClassifier{Number: uint64(len(rules))}
	for i, r := range rules {
		if r.FTN == 0 || r.FTN > maxFTN {
			return fmt.Errorf("write rules of label space %#x: FTN %d is not within 1 and %d", space, r.FTN,
				maxFTN)
		}
		o.Rules[i] = r.object(r.FTN)
	}
	if err := d.maps.LabelRules.Put(space, o); err != nil {
		return fmt.Errorf("write rules of label space %#x: %w", space, err)
	}
	return nil
}

// LabelRules reads the rules of all label spaces.
func (d *DataPath) LabelRules() (map[uint32][]LabelRule, error) {
	all := map[uint32][]LabelRule{}
	var (
		space uint32
		o     objectLabelClassifier
	)
	at := d.maps.LabelRules.Iterate()
	for at.Next(&space, &o) {
		for _, r := range o.Rules[:min(int(o.Number), MaxLabelRules)] {
			all[space] = append(all[space], LabelRule{r.Class, matchOf(r)})
		}
	}
	if err := at.Err(); err != nil {
		return nil, fmt.Errorf("read rules of label spaces: %w", err)
	}
	return all, nil
}
