package ident_test

import (
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pergola-net/pergola/i3/ident"
)

// modulus is the size of the ring.
var modulus = new(big.Int).Lsh(big.NewInt(1), ident.Exact)

func number(k ident.Key) *big.Int {
	b := k.Bytes()
	return new(big.Int).SetBytes(b[:])
}

// drawKey gives keys of which many are near each other, and near the ends of the range.
func drawKey(t *rapid.T, name string) ident.Key {
	var b [ident.KeySize]byte
	for i := range b {
		b[i] = rapid.SampledFrom([]byte{0, 0, 0, 1, 0x7f, 0x80, 0xff, 0xff}).Draw(t, name)
	}
	return ident.KeyFrom(b)
}

func TestKeysAreNumbersModuloTwoToThe128(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawKey(t, "a"), drawKey(t, "b")
		n := rapid.IntRange(0, 127).Draw(t, "n")
		if ident.KeyFrom(a.Bytes()) != a {
			t.Fatalf("%s changes as bytes", a)
		}
		if got, want := a.Compare(b), number(a).Cmp(number(b)); got != want {
			t.Fatalf("Compare(%s, %s) is %d, want %d", a, b, got, want)
		}
		sum := new(big.Int).Add(number(a), new(big.Int).Lsh(big.NewInt(1), uint(n)))
		if got := number(a.Plus(n)); got.Cmp(sum.Mod(sum, modulus)) != 0 {
			t.Fatalf("%s + 2^%d is %x, want %x", a, n, got, sum)
		}
		difference := new(big.Int).Sub(number(a), number(b))
		if got := number(a.From(b)); got.Cmp(difference.Mod(difference, modulus)) != 0 {
			t.Fatalf("from %s to %s is %x, want %x", b, a, got, difference)
		}
	})
}

func TestIntervalsGoClockwise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, from, to := drawKey(t, "k"), drawKey(t, "from"), drawKey(t, "to")
		x, a, b := number(k), number(from), number(to)
		var want bool
		switch a.Cmp(b) {
		case 0:
			want = true
		case -1: // does not pass zero
			want = a.Cmp(x) < 0 && x.Cmp(b) <= 0
		case 1:
			want = a.Cmp(x) < 0 || x.Cmp(b) <= 0
		}
		if got := k.In(from, to); got != want {
			t.Fatalf("%s in (%s, %s]: %t, want %t", k, from, to, got, want)
		}
		if got := k.Between(from, to); got != (want && k != to) {
			t.Fatalf("%s in (%s, %s): %t", k, from, to, got)
		}
	})
}

// binary gives an identifier as 256 characters.
func binary(id ident.ID) string {
	text := new(big.Int).SetBytes(id[:]).Text(2)
	return strings.Repeat("0", ident.Bits-len(text)) + text
}

func TestPrefixesAreThoseOfTheBinaryDigits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawKey(t, "a").ID()
		copy(a[ident.KeySize:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "suffix"))
		b := a
		if flip := rapid.IntRange(-1, 255).Draw(t, "flip"); flip >= 0 {
			b[flip/8] ^= 0x80 >> (flip % 8)
		}
		n := rapid.IntRange(0, 256).Draw(t, "n")

		common := 0
		for common < ident.Bits && binary(a)[common] == binary(b)[common] {
			common++
		}
		if got := ident.Common(a, b); got != common {
			t.Fatalf("%s and %s have %d bits in common, want %d", a, b, got, common)
		}
		prefix := ident.PrefixOf(a, n)
		if got, want := binary(prefix.ID), binary(a)[:n]+strings.Repeat("0", ident.Bits-n); got != want {
			t.Fatalf("the first %d bits of\n%s\nare\n%s", n, binary(a), got)
		}
		if got := prefix.Contains(b); got != (common >= n) {
			t.Fatalf("%s contains %s: %t", prefix, b, got)
		}
	})
}

func TestParseReadsDigitsOrAName(t *testing.T) {
	digits := strings.Repeat("0123456789abcdef", 4)
	id, err := ident.Parse(digits)
	if err != nil || id.String() != digits {
		t.Errorf("Parse(%s) gives %s, %v", digits, id, err)
	}
	// 64 characters that are no digits are a name.
	for _, name := range []string{"camera", strings.Repeat("xyz.", 16)} {
		if id, err := ident.Parse(name); err != nil || id != ident.FromName(name) {
			t.Errorf("Parse(%q) gives %s, %v", name, id, err)
		}
	}
	if _, err := ident.Parse(""); err == nil {
		t.Error("Parse accepts the empty string")
	}
	// SHA-256 of "abc": FIPS 180-2, appendix B.1.
	if got := ident.FromName("abc").Short(); got != "ba7816bf" {
		t.Errorf("the identifier of abc begins with %s", got)
	}
}

func TestWithKeyKeepsTheSuffix(t *testing.T) {
	id, k := ident.FromName("a"), ident.FromName("b").Key()
	got := id.WithKey(k)
	if got.Key() != k || [16]byte(got[16:]) != [16]byte(id[16:]) {
		t.Errorf("%s with key %s is %s", id, k, got)
	}
}

func TestConstraintsHoldInOneDirectionOnly(t *testing.T) {
	secret := ident.FromName("secret").Key()
	x, y := ident.Left(secret), ident.Right(secret)
	if !ident.MayLead(x, secret) || !ident.MayLead(secret, y) {
		t.Error("a constrained pair is refused")
	}
	if ident.MayLead(secret, x) || ident.MayLead(y, secret) || ident.MayLead(secret, secret) || x == y {
		t.Error("a pair that is not constrained is allowed")
	}
}
