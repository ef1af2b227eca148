package record

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// maxUnpacked bounds a value, decompressed, in bytes: a guard against archives that explode.
const maxUnpacked = 1 << 30

// Pack encodes a value as JSON, compressed by zstd.
func Pack(v any) ([]byte, error) {
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out,
		zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(v); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Unpack decodes what Pack encoded.
func Unpack(data []byte, v any) error {
	z, err := zstd.NewReader(bytes.NewReader(data),
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return err
	}
	defer z.Close()
	return json.NewDecoder(z).Decode(v)
}

// NewToken names the parts of a new specification: the time in milliseconds, by which orphaned parts are recognised,
// and 64 random bits.
func NewToken(now time.Time) string {
	var random [8]byte
	rand.Read(random[:]) // never fails
	return fmt.Sprintf("%012x-%s", now.UnixMilli(), hex.EncodeToString(random[:]))
}

// TokenTime is when a token was made; long ago where it is none.
func TokenTime(token string) time.Time {
	stamp, _, _ := strings.Cut(token, "-")
	ms, _ := strconv.ParseInt(stamp, 16, 64)
	return time.UnixMilli(ms)
}
