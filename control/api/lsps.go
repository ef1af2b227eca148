package api

// SliceLSPs says how the label-switched paths of a slice are, router by router.
type SliceLSPs struct {
	Hops []LSPHop `json:"hops"` // by LSP in the slice's order, and then along the path
	// Unreachable are the hosts whose routers are missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// LSPHop is a router on a label-switched path.
type LSPHop struct {
	LSP  string `json:"lsp"`
	Node string `json:"node"`
	Host string `json:"host,omitempty"` // empty where the server is in no cluster
	// Problem says why packets of the LSP do not go on here; empty: they do.
	Problem string `json:"problem,omitempty"`
}
