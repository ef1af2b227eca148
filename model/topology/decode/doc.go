// Package decode fills the types of a topology file from YAML, and finds the positions of paths in the file.
//
//	readtree   the file's one document, within limits
//	decode     any type by its fields
//	shorthand  the short forms that the file allows
//	foreign    keys of other tools' files, and what to write here
//	locate     paths to line and column
package decode
