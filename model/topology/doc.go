// Package topology reads the file in which a user describes a network, and resolves it into a slice.Slice. It is
// pure: bytes and values in, values out. This package is the front of the rooms below it:
//
//	file        the types of the file, its units, and the keys of each type
//	yamltree    YAML to a tree in which every key and value has its position
//	diagnostic  what is wrong: line, column, path in the topology, and what would be right
//	decode      tree to types, short forms included; the positions of paths
//	resolve     types to slice: defaults, groups, names, addresses, routing
//	address     pools of addresses, and sets of networks
//	encode      types to YAML as a person would write it
//	importer    files of other tools to types
//
// Parse is decode, and resolve for what is wrong with the meaning; Resolve is resolve against a running version.
// Schema is the JSON Schema of the file, for editors. docs/topology.md is the reference of the file.
package topology
