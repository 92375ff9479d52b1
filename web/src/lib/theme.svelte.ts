// Light or dark: as the system says, unless a person chose otherwise.

import { recall, remember } from "./memory";

type Choice = "system" | "light" | "dark";

class Theme {
  choice = $state<Choice>((recall("theme") as Choice | null) ?? "system");
  private system = window.matchMedia("(prefers-color-scheme: dark)");
  private systemDark = $state(this.system.matches);

  constructor() {
    this.system.addEventListener("change", (event) => (this.systemDark = event.matches));
    this.show();
  }

  get dark(): boolean {
    return this.choice === "system" ? this.systemDark : this.choice === "dark";
  }

  toggle(): void {
    this.choice = this.dark ? "light" : "dark";
    if ((this.choice === "dark") === this.systemDark) this.choice = "system";
    remember("theme", this.choice === "system" ? null : this.choice);
    this.show();
  }

  private show(): void {
    if (this.choice === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = this.choice;
  }
}

export const theme = new Theme();
