"""How many GPUs become how many nodes with how many processes each (capability 2). Pure; engines
call it in `plan`.

    spread(8, per_node=4)                        2 nodes × 4 processes, a GPU each
    spread(2, per_node=4)                        1 node × 2
    spread(8, per_node=4, multi_process=False)   2 nodes × 1 process that sees 4 GPUs
    spread(6, per_node=4)                        refused: use 4 or 8

The same where a cluster has no GPUs: then the number means processes.
"""

from dataclasses import dataclass

from headway.model.errors import UsageError


@dataclass(frozen=True, slots=True)
class Spread:
    nodes: int
    processes: int  # on each node
    share: int  # GPUs of each node; processes where there are no GPUs

    @property
    def world_size(self) -> int:
        return self.nodes * self.processes


def spread(
    count: int,
    *,
    per_node: int | None = None,
    nodes: int = 1,
    multi_process: bool = True,
    cluster: str = "",
    one_node: bool = False,
) -> Spread:
    """`count`: what `-n` or `gpus:` asks for. `per_node`: GPUs of one node, None where nobody said.
    `nodes` above 1 was asked for by name; otherwise it follows from the others, unless `one_node`
    says that one was. `cluster`: for the words of an error.
    """
    where = f" (cluster {cluster})" if cluster else ""
    if nodes > 1:
        share = _shared(count, nodes)
        if per_node is not None and share > per_node:
            raise UsageError(
                f"{count} GPUs on {nodes} nodes are {share} each, and a node has {per_node}{where}",
                f"use {-(-count // per_node)} nodes or more, or -n {nodes * per_node}",
            )
    elif one_node and per_node is not None and count > per_node:
        raise UsageError(
            f"{count} GPUs on one node, and a node has {per_node}{where}",
            f"use --nodes {-(-count // per_node)}, or -n {per_node}",
        )
    elif per_node is None or count <= per_node:
        nodes, share = 1, count
    elif count % per_node:
        raise _uneven(count, per_node, where)
    else:
        nodes, share = count // per_node, per_node
    return Spread(nodes, share if multi_process else 1, share)


def count_of(processes: int, nodes: int) -> int:
    """What `-n` asks for. Several nodes without it are one process, or GPU, on each."""
    return nodes if processes == 1 else processes


def _shared(count: int, nodes: int) -> int:
    if count % nodes == 0:
        return count // nodes
    low, high = count - count % nodes, count - count % nodes + nodes
    fewer = f"-n {low} or " if low else ""
    raise UsageError(
        f"-n {count} does not spread evenly over {nodes} nodes", f"use {fewer}-n {high}"
    )


def _uneven(count: int, per_node: int, where: str) -> UsageError:
    low = count - count % per_node
    even = next(size for size in range(per_node, 0, -1) if count % size == 0)
    other = f", or set gpu_per_node: {even}" if even > 1 else ""
    return UsageError(
        f"{count} GPUs do not divide into nodes of {per_node}{where}",
        f"use -n {low} or -n {low + per_node}{other}",
    )
