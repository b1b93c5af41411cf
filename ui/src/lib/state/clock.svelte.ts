/** The window's one clock: relative times and countdowns all read it, so that they change together. */
export class Clock {
  /** Every second: running times and countdowns. */
  second = $state(Date.now());
  /** Every ten seconds: ages in a list, which would otherwise redraw for nothing. */
  slow = $state(Date.now());

  start(): () => void {
    let ticks = 0;
    const timer = setInterval(() => {
      this.second = Date.now();
      if (++ticks % 10 === 0) this.slow = this.second;
    }, 1000);
    return () => clearInterval(timer);
  }
}
