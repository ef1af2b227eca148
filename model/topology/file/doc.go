// Package file has the types of a topology file: what a user wrote, before defaults, groups and addresses. The types
// are also the body of the API's requests. The tags of their fields say everything about a key: its name, its
// description, its words, its range. Decoding, writing, checking and the JSON Schema read them (FieldsOf).
package file
