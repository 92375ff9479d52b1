// The width of the window, for layouts that differ in more than style.

class WindowSize {
  width = $state(window.innerWidth);
  height = $state(window.innerHeight);

  constructor() {
    window.addEventListener("resize", () => {
      this.width = window.innerWidth;
      this.height = window.innerHeight;
    });
  }

  get phone(): boolean {
    return this.width <= 640;
  }

  /** Wide enough for a job beside the list. */
  get wide(): boolean {
    return this.width >= 1100;
  }
}

export const size = new WindowSize();
