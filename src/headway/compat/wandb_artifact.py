"""`wandb.Artifact`: files and folders under one name, kept by `hw.artifact`."""

import os
import shutil
import tempfile

from headway.compat.wandb_errors import cannot_read
from headway.compat.wandb_types import WBValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Any

    from headway.model.json_types import JsonObject


class ArtifactManifestEntry:
    def __init__(self, path: str, local_path: str) -> None:
        self.path, self.local_path = path, local_path


class Artifact:
    """What was added is taken when the artifact is logged."""

    def __init__(
        self,
        name: str,
        type: str = "file",
        description: "str | None" = None,
        metadata: "JsonObject | None" = None,
        **_: object,
    ) -> None:
        self.name, self.type, self.description = str(name), str(type), description
        self.metadata: JsonObject = dict(metadata or {})
        self.aliases: list[str] = []
        self.tags: list[str] = []
        self.ttl: Any = None
        self._entries: dict[str, str] = {}  # name inside -> path here
        self._references: list[str] = []
        self._folder: str | None = None
        self._logged = False

    # -- adding ----

    def add_file(
        self, local_path: "Any", name: "str | None" = None, is_tmp: "Any" = False, **_: "Any"
    ) -> "Any":
        path = os.fspath(local_path)
        if not os.path.isfile(path):
            raise ValueError(f"Path is not a file: {path}")
        inside = name or os.path.basename(path)
        self._entries[inside] = os.path.abspath(path)
        return ArtifactManifestEntry(inside, path)

    def add_dir(self, local_path: "Any", name: "str | None" = None, **_: "Any") -> None:
        top = os.fspath(local_path)
        if not os.path.isdir(top):
            raise ValueError(f"Path is not a directory: {top}")
        for folder, _folders, files in os.walk(top):
            for file in files:
                path = os.path.join(folder, file)
                inside = os.path.relpath(path, top)
                self._entries[os.path.join(name, inside) if name else inside] = os.path.abspath(
                    path
                )

    def add_reference(self, uri: object, name: "str | None" = None, **_: object) -> "list[Any]":
        self._references.append(str(uri))
        return []

    def add(self, obj: object, name: str, **_: object) -> "Any":
        """Something to look at, as a file: the bytes that `wandb.log` would keep of it."""
        found = obj._headway_media() if isinstance(obj, WBValue) else None
        if found is not None:
            with self.new_file(f"{name}.{obj.__class__.__name__.lower()}", "wb") as file:
                file.write(found.data)
        return ArtifactManifestEntry(name, "")

    def new_file(self, name: str, mode: str = "w", encoding: "str | None" = None) -> "IO[Any]":
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="headway-artifact-")
        path = os.path.join(self._folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._entries[name] = path
        return open(path, mode, encoding=encoding if "b" in mode else encoding or "utf-8")

    def remove(self, item: object) -> None:
        self._entries.pop(str(getattr(item, "path", item)), None)

    # -- as wandb has it ----

    @property
    def manifest(self) -> "Any":
        entries = {name: ArtifactManifestEntry(name, path) for name, path in self._entries.items()}
        return type("Manifest", (), {"entries": entries})()

    @property
    def size(self) -> int:
        return sum(os.path.getsize(path) for path in self._entries.values() if os.path.isfile(path))

    @property
    def version(self) -> str:
        return "latest"

    @property
    def qualified_name(self) -> str:
        return f"{self.name}:latest"

    @property
    def id(self) -> str:
        return self.name

    @property
    def state(self) -> str:
        return "COMMITTED" if self._logged else "PENDING"

    def files(self) -> "Iterator[str]":
        return iter(self._entries)

    def wait(self, timeout: object = None) -> "Artifact":
        """It is safe in the spool already."""
        return self

    def save(self, **_: object) -> None:
        from headway.compat import wandb

        wandb.log_artifact(self)

    finalize = is_draft = lambda self, *_, **__: None

    def link(self, target_path: str, aliases: object = None) -> None:
        return None

    def download(self, *_: object, **__: object) -> str:
        raise cannot_read("Artifact.download()")

    checkout = verify = get_path = get_entry = get = file = logged_by = used_by = download

    def _put(self, aliases: "Any" = None) -> None:
        from headway.client.artifact import put

        words = [aliases] if isinstance(aliases, str) else list(aliases or [])
        meta = {**self.metadata}
        if self.description:
            meta["description"] = self.description
        if self._references:
            meta["references"] = self._references[:1000]
        put(list(self._entries.items()), self.name, self.type, meta, words)
        self._logged = True
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
