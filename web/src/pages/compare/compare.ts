// Answers of /api/compare and /api/diff, from the generated contract.

import type { CompareTable, ComparedJob as ContractJob, Difference, Importance, Change } from "../../api/contract";
import type { State } from "../../api/types";

export type { Difference, Importance, Change };
export type ComparedJob = Omit<ContractJob, "state"> & { state: State };
export type Compared = Omit<CompareTable, "jobs"> & { jobs: ComparedJob[] };

const FEW_JOBS = 6;
const FEW_VALUES = 8;

/** How the curves of many jobs are best told apart at first: by the setting that has few values, seeds as a band. */
export function groupingOf(told: Compared): { colourBy: string; mean: boolean } {
  const isSeed = (key: string): boolean => /(^|[._])seed$/i.test(key);
  if (told.jobs.length <= FEW_JOBS) return { colourBy: "", mean: false };
  const values = (key: string): number => new Set(told.jobs.map((job) => JSON.stringify(job.config[key] ?? null))).size;
  const key = told.differs.find((one) => !isSeed(one) && values(one) > 1 && values(one) <= FEW_VALUES) ?? "";
  return { colourBy: key, mean: key !== "" && told.differs.some(isSeed) };
}
