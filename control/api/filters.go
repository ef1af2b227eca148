package api

// NodeFilters are the filters of a program node, as they are now.
type NodeFilters struct {
	Node string     `json:"node"`
	Key  []KeyField `json:"key"` // that filters name; empty: the program declares no key
	// Filters are in the order of tables; in each, the first that matches wins.
	Filters []Filter `json:"filters"`
}

// KeyField is a field of the key that a program looks up.
type KeyField struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// Filter says what becomes of frames whose key it matches. Table, Priority and Match name it.
type Filter struct {
	Table    uint32 `json:"table"`
	Priority uint32 `json:"priority"`
	Match    string `json:"match"`  // such as destination=10.0.0.0/8
	Result   string `json:"result"` // such as send 2
	Hits     uint64 `json:"hits"`   // frames, since it was inserted
}

// FilterChange deletes filters, and then inserts others: all of that, or nothing.
type FilterChange struct {
	Delete []string `json:"delete,omitempty" maxItems:"131072" doc:"Filters that are there, one each: [table N] [priority N] FIELD=VALUE[/MASK]..."`
	Insert []string `json:"insert,omitempty" maxItems:"131072" doc:"Filters that are not there, one each: [table N] [priority N] FIELD=VALUE[/MASK]... -> VERDICT."`
}

// FilterList is all filters that a node is to have.
type FilterList struct {
	Filters []string `json:"filters" maxItems:"131072" doc:"Filters, one each, as in FilterChange."`
}
