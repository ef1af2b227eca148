package server

import (
	"hash/maphash"
	"net/netip"
	"time"
)

// limiter bounds how often something is done, in all and for each address. It takes a fixed amount of memory: addresses
// share buckets, by a hash that nobody can predict.
type limiter struct {
	rate      Rate
	all       bucket
	addresses [4096]bucket
	seed      maphash.Seed
}

// bucket is a token bucket. It holds as many tokens as come in two seconds.
type bucket struct {
	used float64 // of what it holds
	at   time.Time
}

func newLimiter(r Rate) *limiter { return &limiter{rate: r, seed: maphash.MakeSeed()} }

// allow reports whether it may be done once more, and counts it if so.
func (l *limiter) allow(now time.Time, a netip.Addr) bool {
	one := &l.addresses[maphash.Comparable(l.seed, a)%uint64(len(l.addresses))]
	if !one.room(now, l.rate.Address) || !l.all.room(now, l.rate.All) {
		return false
	}
	one.used++
	l.all.used++
	return true
}

func (b *bucket) room(now time.Time, rate float64) bool {
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.used = max(0, b.used-passed*rate)
		b.at = now
	}
	return b.used+1 <= max(1, 2*rate)
}
