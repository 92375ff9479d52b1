// Who looks at the page, and what they may do.

import type { ServerInfo } from "../api/types";

class Session {
  server = $state.raw<ServerInfo | null>(null);

  get mayAct(): boolean {
    return this.server !== null && this.server.role !== "read";
  }
}

export const session = new Session();
