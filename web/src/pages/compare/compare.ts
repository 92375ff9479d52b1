// Answers of /api/compare and /api/diff, from the generated contract.

import type { CompareTable, ComparedJob as ContractJob, Difference, Importance, Change } from "../../api/contract";
import type { State } from "../../api/types";

export type { Difference, Importance, Change };
export type ComparedJob = Omit<ContractJob, "state"> & { state: State };
export type Compared = Omit<CompareTable, "jobs"> & { jobs: ComparedJob[] };
