"""Keep a training state on disk: the server's, and client states that need not fit in memory.

`checkpoint.py` says when a state is kept and who may resume it; this is how its files are written.
A checkpoint and its client states are consistent at every moment: a client's file has a version in
its name, the checkpoint names the versions that it needs, and older versions are only deleted after
the checkpoint is in place.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fedrepro.engine import tree
from fedrepro.engine.modules import float_buffers
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import UserError, brief, refusal, unreadable
from fedrepro.support.files import plain, write_atomically

CACHE_BYTES = 256 * 2**20  # of client states in memory
KEY = "fedrepro"  # a single metadata key: the order of several is not fixed


def save_tree(
    path: Path, what: Tree, facts: Mapping[str, Any] | None = None, checksummed: bool = False
) -> str:
    """Write a tree and JSON metadata to one file, which appears complete or not at all.

    Args:
        checksummed: store its SHA-256 in the file; for files that no manifest lists.

    Returns:
        The SHA-256, or "".
    """
    tensors = {name: leaf.detach().cpu().contiguous() for name, leaf in tree.named(what)}
    about = {"shape": _shape(what), "facts": facts or {}}
    seal = _checksum(about, tensors) if checksummed else ""
    if checksummed:
        about["seal"] = seal
    metadata = {KEY: json.dumps(about)}
    with write_atomically(path) as temporary:
        temporary.touch()
        usual = temporary.stat().st_mode  # as the umask has it: safetensors makes files private
        try:
            save_file(_unshared(tensors), temporary, metadata)
            temporary.chmod(usual)
        except SafetensorError as error:  # mostly a full disk
            raise refusal(path, f"could not be written: {error}", code="unwritable") from error
    return seal


def load_tree(
    path: Path, checksummed: bool = False, seal: str | None = None
) -> tuple[Tree, dict[str, Any]]:
    """The tree that :func:`save_tree` wrote, and the facts beside it.

    Args:
        seal: the SHA-256 that a ``checksummed`` file must have; None for any.

    Raises:
        UserError: if the file is visibly damaged; in a ``checksummed`` file, if any bit differs;
            with the code "unreadable" if the system refuses to read it.
        MemoryError: if memory runs out.
    """
    try:
        with safe_open(plain(path), framework="pt") as file:
            about = json.loads(file.metadata()[KEY])
            # Copied: bits may depend on a tensor's alignment in memory, and a file packs them.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        stated = about.pop("seal", None)
        if checksummed and stated != _checksum(about, tensors):
            raise ValueError("its content differs from its checksum")
        if seal not in (None, stated):
            raise ValueError("it is another state")
        return _unflatten(about["shape"], tensors), about["facts"]
    except (
        SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError,
        FileNotFoundError,
    ) as error:  # fmt: skip
        raise damaged(path, error) from error
    except OSError as error:  # says nothing of its content, as lack of memory does not
        raise unreadable(path, error.strerror or error) from error


def damaged(path: Path, error: Exception) -> UserError:
    """The error for a file that does not hold a state of ours."""
    reason = brief(str(error).partition("\n")[0])
    why = f"expected a state that fedrepro wrote; it is damaged ({reason})"
    return refusal(path, f"{why}. Remove it to make it again", code="damaged")


def refuse_other_constants(
    module: nn.Module, tensors: Tree, facts: Mapping[str, Any], where: str
) -> None:
    """Raises UserError unless what a file of a model lacks is in the model as it was in the run.

    That is what training cannot change: frozen parameters, and buffers that stay as they are.
    """
    leaves = {**dict(module.named_parameters()), **float_buffers(module)}
    rest = {name: leaf for name, leaf in leaves.items() if name not in tensors}
    if digest_of(rest) != facts.get("constants", ""):
        name = next(iter(rest), "one that the run trained")
        why = (
            f"its frozen parameters or buffers are not those of the run, such as {name}: files of "
            "models have only what is trained: let the model be built as it was"
        )
        raise refusal(where, why, name)


def digest_of(constants: Tree) -> str:
    """The SHA-256 of tensors with their names; "" for none."""
    leaves = {name: leaf.detach().cpu() for name, leaf in constants.items()}
    return _checksum({}, leaves) if leaves else ""


def _checksum(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of metadata and tensors, including names, dtypes and shapes."""
    kinds = [(name, str(each.dtype), list(each.shape)) for name, each in sorted(tensors.items())]
    digest = hashlib.sha256(json.dumps([about, kinds], sort_keys=True).encode())
    for _, tensor in sorted(tensors.items()):
        laid = tensor.clone(memory_format=torch.contiguous_format).view(-1)
        digest.update(laid.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _shape(what: Tree, path: str = "") -> Any:
    """The tree with every leaf replaced by its name; keeps empty branches."""
    if isinstance(what, dict):
        return {key: _shape(part, f"{path}/{key}" if path else key) for key, part in what.items()}
    return path


def _unflatten(shape: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(shape, dict):
        return {key: _unflatten(part, tensors) for key, part in shape.items()}
    return tensors[shape]


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that share memory: safetensors refuses two names for the same memory."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        if tensor.data_ptr() in seen:
            tensors[name] = tensor.clone()
        seen.add(tensor.data_ptr())
    return tensors


class ClientStore:
    """Client states: the latest in memory, the rest in one file per client.

    Args:
        folder: for the files; created with the first one.
        versions: client -> version and SHA-256, from a checkpoint; None for a new run.
        device: of the returned states.
        cache_bytes: limit of the states in memory.
    """

    def __init__(
        self,
        folder: Path,
        versions: Mapping[str, tuple[int, str]] | None = None,
        device: str | torch.device = "cpu",
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.folder = folder
        self.device = device
        self.cache_bytes = cache_bytes
        named = {int(client): each for client, each in (versions or {}).items()}
        self._versions = {client: version for client, (version, _) in named.items()}
        self._seals = {client: seal for client, (_, seal) in named.items()}
        self._memory: OrderedDict[int, Tree] = OrderedDict()
        self._unsaved: set[int] = set()
        self._bytes = 0
        self.settle()

    def get(self, client: int) -> Tree | None:
        """A client's state, or None if it has none yet; changes nothing in memory or on disk."""
        if client in self._memory or client not in self._versions:
            return self._memory.get(client)
        client_state, _ = load_tree(self._file(client), checksummed=True, seal=self._seals[client])
        return tree.apply(lambda leaf: leaf.to(self.device), client_state)

    def put(self, client: int, client_state: Tree) -> None:
        """Replace a client's state."""
        if not tree.leaves(client_state):
            return  # a method without client state writes nothing
        self._unsaved.add(client)
        self._remember(client, client_state)

    def flush(self) -> dict[str, tuple[int, str]]:
        """Write all states that are not on disk.

        Returns:
            The version and SHA-256 of each client's file, which a checkpoint must name.
        """
        for client in sorted(self._unsaved):
            self._write(client)
        versions = sorted(self._versions.items())
        return {str(client): (version, self._seals[client]) for client, version in versions}

    def settle(self) -> None:
        """Drop old versions. Call this once the checkpoint with the new versions is in place."""
        meant = {f"{client}.{version}.safetensors" for client, version in self._versions.items()}
        for file in self.folder.glob("*.safetensors"):
            if file.name not in meant:
                file.unlink()

    def clients(self) -> list[int]:
        """All clients that have a state."""
        return sorted({*self._versions, *self._memory})

    def _file(self, client: int) -> Path:
        return self.folder / f"{client}.{self._versions[client]}.safetensors"

    def _write(self, client: int) -> None:
        # Never overwrite a version that the last checkpoint needs: it must stay readable.
        self._versions[client] = self._versions.get(client, 0) + 1
        path, state = self._file(client), self._memory[client]
        self._seals[client] = save_tree(path, state, checksummed=True)
        self._unsaved.discard(client)

    def _remember(self, client: int, client_state: Tree) -> None:
        if client in self._memory:
            self._bytes -= tree.size_in_bytes(self._memory[client])
        self._memory[client] = client_state
        self._memory.move_to_end(client)
        self._bytes += tree.size_in_bytes(client_state)
        while self._bytes > self.cache_bytes and len(self._memory) > 1:
            oldest = next(iter(self._memory))
            if oldest in self._unsaved:
                self._write(oldest)
            self._bytes -= tree.size_in_bytes(self._memory.pop(oldest))


def stored(
    folder: Path, server: Tree, client_states: Mapping[int, Tree]
) -> tuple[Tree, ClientStore]:
    """The server's and the clients' states, written to an empty folder and read again."""
    save_tree(folder / "server", server)
    written = ClientStore(folder / "clients")
    for client, client_state in client_states.items():
        written.put(client, client_state)
    loaded, _ = load_tree(folder / "server")
    return loaded, ClientStore(folder / "clients", versions=written.flush())
