package kv

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

// newLogger makes a logger that writes to a file; without a name, messages are dropped. fatal, if set, is called where
// zap would end the process; the goroutine that reported ends in its place.
func newLogger(file string, fatal func(message string, err error)) *logger {
	core, closeFile := zapcore.NewNopCore(), func() {}
	if file != "" {
		// The store works without a log. An error of the log's directory is reported where the directory is
		// made.
		if w, stop, err := zap.Open(file); err == nil {
			core = zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), w,
				zap.WarnLevel)
			closeFile = stop
		}
	}
	if fatal == nil {
		return &logger{zap.New(core), closeFile}
	}
	hook := fatalHook(fatal)
	return &logger{zap.New(core, zap.WithFatalHook(hook), zap.WithPanicHook(hook)), closeFile}
}

// fatalHook is called where zap would exit or panic.
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
