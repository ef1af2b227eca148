// Package encode writes a topology as YAML: marshal makes the shortest form of each value, emit lays it out in lines.
package encode
