package slice

import (
	"crypto/sha256"
	"encoding/hex"
)

// Limits of packet programs.
const (
	MaxObject            = 256 << 10 // bytes of an object
	MaxProgramInterfaces = 63        // of a node; a program has one bit for each
)

// PacketProgram is the code of a node of kind Program, with what it looks up. Package datapath/program says what it may
// do.
type PacketProgram struct {
	Name   string `json:"name"`   // of the file that the user named, for messages
	Object string `json:"object"` // key of Slice.Programs: SHA-256 in hex
	// Filters are one a line, as program.ParseFilters reads them.
	Filters []string `json:"filters,omitempty"`
	// Interfaces gives the names of the node's interfaces in the order in which the program numbers them, from 1.
	Interfaces []string `json:"interfaces,omitempty"`
}

// ObjectName is the key of an object in Slice.Programs.
func ObjectName(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:])
}
