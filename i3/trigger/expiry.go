package trigger

// expiry is a heap (container/heap): the trigger that expires first is at the top.
type expiry []*Trigger

func (e expiry) Len() int           { return len(e) }
func (e expiry) Less(i, j int) bool { return e[i].Expires.Before(e[j].Expires) }

func (e expiry) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].place, e[j].place = i, j
}

func (e *expiry) Push(x any) {
	t := x.(*Trigger)
	t.place = len(*e)
	*e = append(*e, t)
}

func (e *expiry) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = nil
	*e = (*e)[:len(*e)-1]
	return last
}
