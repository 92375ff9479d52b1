// The time of day for everything that counts by itself: one timer for the whole page, none while it is hidden.

class Clock {
  now = $state(Date.now());
  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now();
    }, 1000);
  }
}

export const clock = new Clock();
