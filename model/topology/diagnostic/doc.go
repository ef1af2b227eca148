// Package diagnostic has what is wrong with a topology: a message, its place in the topology (Place), its position in
// the file, and what would be right.
package diagnostic
