package store

import (
	"runtime"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger keeps etcd's warnings and errors in a file, which Close closes.
type logger struct {
	*zap.Logger
	Close func()
}

// quietLogger makes a logger that writes to a file; an empty name means nowhere. fatal, if set, is called where zap
// would end the process; the goroutine that reported ends in its place.
func quietLogger(file string, fatal func(message string, err error)) *logger {
	core, closeFile := zapcore.NewNopCore(), func() {}
	if file != "" {
		// Without a log things still work; the directory's own troubles are reported by who made it.
		if w, stop, err := zap.Open(file); err == nil {
			core = zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), w, zap.WarnLevel)
			closeFile = stop
		}
	}
	if fatal == nil {
		return &logger{zap.New(core), closeFile}
	}
	hook := fatalHook(fatal)
	return &logger{zap.New(core, zap.WithFatalHook(hook), zap.WithPanicHook(hook)), closeFile}
}

// fatalHook stands where zap would exit or panic.
type fatalHook func(message string, err error)

// OnWrite implements zapcore.CheckWriteHook.
func (h fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	var cause error
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			cause = err
		}
	}
	h(entry.Message, cause)
	runtime.Goexit()
}
