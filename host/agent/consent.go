package agent

import "context"

// withdraw forgets what a slice that is deleted was granted of this machine.
func (a *Agent) withdraw(ctx context.Context, name string) {
	if a.cfg.Consents == nil {
		return
	}
	if err := a.cfg.Consents.Forget(ctx, name); err != nil {
		a.cfg.Log.Warn("forget what a slice was granted of this machine", "slice", name, "error", err)
	}
}
