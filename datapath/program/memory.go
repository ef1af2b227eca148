package program

import (
	"errors"
	"fmt"
)

// WriteMemory fills the first elements of a program's memory, one after the other, as C has them in an array.
func (p *Program) WriteMemory(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	m, size := p.maps[prefix+memoryMap], p.Object.Memory.Element
	if m == nil {
		return errors.New("fill memory: the program has no PERGOLA_MEMORY")
	}
	if len(b)%size != 0 || len(b)/size > p.Object.Memory.Count {
		return fmt.Errorf("fill memory: it has %s, and %d bytes are not some of these", p.Object.Memory, len(b))
	}
	for i := range len(b) / size {
		if err := m.Put(uint32(i), b[i*size:(i+1)*size]); err != nil {
			return fmt.Errorf("fill element %d of memory: %w", i, err)
		}
	}
	return nil
}
