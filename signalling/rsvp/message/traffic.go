package message

// Service is a service of RFC 2210.
type Service uint8

// Services. General is for what is said of all of them, and none that could be reserved.
const (
	General        Service = 1
	Guaranteed     Service = 2
	ControlledLoad Service = 5
)

// Numbers of parameters, and their lengths in words.
const (
	tokenBucket       = 127
	tokenBucketWords  = 5
	guaranteedRate    = 130
	guaranteedWords   = 2
	serviceHeader     = 1 // word
	parameterHeader   = 1
	tokenBucketLength = parameterHeader + tokenBucketWords
)

// Bucket is a token bucket, in bytes and bytes a second.
type Bucket struct {
	Rate, Size, Peak float32
	MinPoliced       uint32 // smaller packets count as so many bytes
	MaxPacket        uint32
}

func readBucket(r *reader) Bucket {
	b := Bucket{r.rate(), r.rate(), r.rate(), r.u32(), r.u32()}
	if b.MinPoliced > b.MaxPacket {
		r.fail("minimum policed unit %d is above the maximum packet size %d", b.MinPoliced, b.MaxPacket)
	}
	return b
}
func (b Bucket) write(w *writer) {
	if b.MinPoliced > b.MaxPacket {
		w.fail("minimum policed unit %d is above the maximum packet size %d", b.MinPoliced, b.MaxPacket)
	}
	w.u8(tokenBucket)
	w.u8(0)
	w.u16(tokenBucketWords)
	w.rate(b.Rate)
	w.rate(b.Size)
	w.rate(b.Peak)
	w.u32(b.MinPoliced)
	w.u32(b.MaxPacket)
}

// SenderTspec is what a sender is going to send.
type SenderTspec struct{ Bucket Bucket }

func readSenderTspec(r *reader) Object {
	if s, words := readService(r); s != General || words != tokenBucketLength {
		r.fail("service %d of %d words, want %d of %d", s, words, General, tokenBucketLength)
	}
	r.parameter(tokenBucket, tokenBucketWords)
	return SenderTspec{readBucket(r)}
}
func (SenderTspec) kind() Kind { return Kind{classSenderTspec, 2} }
func (t SenderTspec) write(w *writer) {
	writeService(w, General, tokenBucketLength)
	t.Bucket.write(w)
}

// Flowspec is what a receiver reserves.
type Flowspec struct {
	Service Service
	Bucket  Bucket
	// Reserved (bytes a second) and Slack (microseconds) are those of the guaranteed service.
	Reserved float32
	Slack    uint32
}

func readFlowspec(r *reader) Object {
	s, words := readService(r)
	f := Flowspec{Service: s}
	if s != Guaranteed && s != ControlledLoad || words != f.words() {
		r.fail("service %d of %d words", s, words)
	}
	r.parameter(tokenBucket, tokenBucketWords)
	f.Bucket = readBucket(r)
	if s == Guaranteed {
		r.parameter(guaranteedRate, guaranteedWords)
		f.Reserved, f.Slack = r.rate(), r.u32()
	}
	return f
}
func (Flowspec) kind() Kind { return Kind{classFlowspec, 2} }
func (f Flowspec) words() int {
	if f.Service == Guaranteed {
		return tokenBucketLength + parameterHeader + guaranteedWords
	}
	return tokenBucketLength
}
func (f Flowspec) write(w *writer) {
	if f.Service != Guaranteed && (f.Service != ControlledLoad || f.Reserved != 0 || f.Slack != 0) {
		w.fail("service %d, with a rate of %v and a slack of %d", f.Service, f.Reserved, f.Slack)
	}
	writeService(w, f.Service, f.words())
	f.Bucket.write(w)
	if f.Service == Guaranteed {
		w.u8(guaranteedRate)
		w.u8(0)
		w.u16(guaranteedWords)
		w.rate(f.Reserved)
		w.u32(f.Slack)
	}
}

// Bandwidth is the rate to reserve, in bytes a second.
func (f Flowspec) Bandwidth() float32 {
	if f.Service == Guaranteed {
		return max(f.Reserved, f.Bucket.Rate)
	}
	return f.Bucket.Rate
}

// readService reads the two headers of an object with one service, and gives the service's length in words.
func readService(r *reader) (Service, int) {
	if v := r.u8() >> 4; v != 0 {
		r.fail("message format %d, want 0", v)
	}
	r.skip(1)
	overall := int(r.u16())
	s := Service(r.u8())
	r.skip(1)
	words := int(r.u16())
	if overall != words+serviceHeader {
		r.fail("%d words in all, and %d in the service", overall, words)
	}
	return s, words
}
func writeService(w *writer, s Service, words int) {
	w.u16(0)
	w.u16(uint16(words + serviceHeader))
	w.u8(uint8(s))
	w.u8(0)
	w.u16(uint16(words))
}

func (r *reader) parameter(number uint8, words uint16) {
	n := r.u8()
	r.skip(1)
	if l := r.u16(); n != number || l != words {
		r.fail("parameter %d of %d words, want %d of %d", n, l, number, words)
	}
}

// Adspec is what routers on the way say of themselves: for each service its parameters, in the order of the wire.
type Adspec struct{ Services []AdService }

// AdService is what is said of a service.
type AdService struct {
	Service    Service
	Broken     bool // a router on the way does not have the service
	Parameters []Parameter
}

// Parameter is one number of RFC 2215, or several.
type Parameter struct {
	Number  uint8
	Invalid bool // a router on the way did not know it
	Words   []uint32
}

const flagged = 0x80

func readAdspec(r *reader) Object {
	if v := r.u8() >> 4; v != 0 {
		r.fail("message format %d, want 0", v)
	}
	r.skip(1)
	if words := int(r.u16()); words*4 != len(r.b) {
		r.fail("%d words in all, and %d bytes", words, len(r.b))
	}
	const usual = 4 // services, and parameters of one
	a := Adspec{Services: make([]AdService, 0, usual)}
	values := make([]uint32, 0, len(r.b)/4) // of all parameters
	for r.more() {
		s := AdService{Service: Service(r.u8()), Broken: r.u8()&flagged != 0}
		words := int(r.u16())
		for words > 0 && r.err == "" {
			p := Parameter{Number: r.u8(), Invalid: r.u8()&flagged != 0}
			n := int(r.u16())
			if words -= parameterHeader + n; words < 0 {
				r.fail("parameter %d of %d words is longer than its service", p.Number, n)
			}
			first := len(values)
			for ; n > 0 && r.err == ""; n-- {
				values = append(values, r.u32())
			}
			p.Words = values[first:len(values):len(values)]
			if s.Parameters == nil {
				s.Parameters = make([]Parameter, 0, usual)
			}
			s.Parameters = append(s.Parameters, p)
		}
		a.Services = append(a.Services, s)
	}
	return a
}
func (Adspec) kind() Kind { return Kind{classAdspec, 2} }
func (a Adspec) write(w *writer) {
	overall := 0
	for _, s := range a.Services {
		overall += serviceHeader + s.words()
	}
	w.u16(0)
	w.u16(uint16(overall))
	for _, s := range a.Services {
		w.u8(uint8(s.Service))
		w.flag(s.Broken)
		w.u16(uint16(s.words()))
		for _, p := range s.Parameters {
			w.u8(p.Number)
			w.flag(p.Invalid)
			w.u16(uint16(len(p.Words)))
			for _, v := range p.Words {
				w.u32(v)
			}
		}
	}
}
func (s AdService) words() (n int) {
	for _, p := range s.Parameters {
		n += parameterHeader + len(p.Words)
	}
	return n
}
func (w *writer) flag(set bool) {
	if set {
		w.u8(flagged)
	} else {
		w.u8(0)
	}
}
