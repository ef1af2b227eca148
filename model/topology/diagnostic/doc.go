// Package diagnostic describes what is wrong with a topology: a message, the path in the topology (Path), the position
// in the file, and what would be right.
package diagnostic
