package message

// UserError stands beside an ErrorSpec and says more of the error, for people (USER_ERROR_SPEC, RFC 5284).
type UserError struct {
	Enterprise uint32 // IANA's number of the organization that defines Org and Value; 0: none does
	Org        uint8
	Value      uint16
	Text       string // at most 255 bytes
	More       []byte // subobjects, as they are
}

func readUserError(r *reader) Object {
	e := UserError{Enterprise: r.u32(), Org: r.u8()}
	n := int(r.u8())
	e.Value = r.u16()
	e.Text = string(r.take(n))
	r.padding(n)
	if r.more() {
		e.More = r.rest()
	}
	return e
}
func (UserError) kind() Kind { return Kind{classUserError, 1} }
func (e UserError) write(w *writer) {
	if len(e.Text) > 255 {
		w.fail("a text of %d bytes, at most 255", len(e.Text))
	}
	w.u32(e.Enterprise)
	w.u8(e.Org)
	w.u8(uint8(len(e.Text)))
	w.u16(e.Value)
	w.bytes([]byte(e.Text))
	w.pad(len(e.Text))
	w.bytes(e.More)
}
