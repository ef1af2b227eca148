package topology

import "flag"

var update = flag.Bool("update", false, "write the golden files and the published schema anew")
