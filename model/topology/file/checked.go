package file

import "regexp"

// Checked is a text whose form can be wrong.
type Checked interface {
	// Check says what is wrong with the form; nil where nothing is.
	Check() error
}

// Check is the error of Bits.
func (r Rate) Check() error { _, err := r.Bits(); return err }

// Check is the error of Bits.
func (r PolicedRate) Check() error { _, err := r.Bits(); return err }

// Check is the error of Count.
func (b Burst) Check() error { _, err := b.Count(); return err }

// Check is the error of Value.
func (l QueueLength) Check() error { _, err := l.Value(); return err }

// Check is the error of Frames.
func (r FrameRate) Check() error { _, err := r.Frames(); return err }

// Check is the error of Duration.
func (d Duration) Check() error { _, err := d.Duration(); return err }

// Check is the error of Value.
func (p Percent) Check() error { _, err := p.Value(); return err }

// Check is the error of Count.
func (b Bytes) Check() error { _, err := b.Count(); return err }

// NamePattern is a DNS label (RFC 1123) with underscores: the name of a network, a node or a group.
var NamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$`)
