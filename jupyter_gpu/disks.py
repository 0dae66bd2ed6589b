"""What lies below a folder: a disk of this machine, or one that other machines see too.

SQLite's locks are slow and may fail there, so the broker warns of it and `jupyter gpu doctor` looks for it.
"""

from __future__ import annotations

from pathlib import Path

import psutil

#: File systems that other machines see too: the shared memory that a write-ahead log needs is not shared there.
NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "fhgfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "mfs",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb", "smb2", "smb3", "smbfs", "wekafs",
})  # fmt: skip
#: A FUSE type names its program ("fuse.sshfs"); these serve a disk of this machine, any other may be remote.
_LOCAL_FUSE = frozenset({"bindfs", "ext4", "fuse2fs", "fuseblk", "fuse-overlayfs", "mergerfs", "ntfs-3g", "zfs"})


def network_file_system(folder: Path) -> str | None:
    """The type of the file system below a folder if other machines may share it, else None."""
    kind = file_system(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        return kind
    if kind.startswith("fuse.") and kind.removeprefix("fuse.") not in _LOCAL_FUSE:
        return kind
    return None


def file_system(folder: Path) -> str:
    """The type of the file system below a folder; empty where no mount is known."""
    where = folder.resolve()
    kind = ""
    longest = -1
    for mount in psutil.disk_partitions(all=True):
        point = Path(mount.mountpoint)
        # Later mounts cover earlier ones at the same place, hence not only longer but as long.
        if (point == where or point in where.parents) and len(point.parts) >= longest:
            kind, longest = mount.fstype, len(point.parts)
    return kind
