package file

// Spellings are other ways to write a key that are taken as they are.
var Spellings = map[string]string{
	"group":     "groups",
	"loopback":  "loopbacks",
	"endpoints": "ends",
	"subnet":    "subnets",
}
