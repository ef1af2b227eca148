// Package decode fills the types of a topology file from YAML, and finds the positions of places in the file.
//
//	readtree   the file's one document, within limits
//	decode     any type by its fields
//	shorthand  the short forms that the file allows
//	foreign    keys of other tools' files, and what to write here
//	locate     places to line and column
package decode
