//! The kernel's version, and whether it lets this process use io_uring.

use io_uring::IoUring;
use rustix::io::Errno;

use super::Finding;

/// `DEFER_TASKRUN` came with 6.1; multishot receive into provided buffers with 6.0.
const KERNEL_MIN: (u32, u32) = (6, 1);

/// 0 lets everybody in, 1 only the privileged and a group, 2 nobody; there since 6.6.
const IO_URING_SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

pub(super) fn check() -> Vec<Finding> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    version(&release).or_else(ring).into_iter().collect()
}

fn version(release: &str) -> Option<Finding> {
    let (major, minor) = KERNEL_MIN;
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let found = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => {
            return Some(Finding::warn(format!(
                "cannot read this kernel's version ({release}): pgmux needs Linux {major}.{minor} or newer"
            )));
        }
    };
    (found < KERNEL_MIN).then(|| {
        Finding::refuse(format!("Linux {release} is too old for io_uring as pgmux uses it: boot Linux {major}.{minor} or newer"))
    })
}

/// Makes a ring with the flags that a shard uses.
fn ring() -> Option<Finding> {
    let ring: std::io::Result<IoUring> = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .build(8);
    let error = ring.err()?;
    let switch = std::fs::read_to_string(IO_URING_SWITCH).ok();
    Some(Finding::refuse(explain(
        &error,
        switch.as_deref().map(str::trim),
    )))
}

fn explain(error: &std::io::Error, switch: Option<&str>) -> String {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    match (code, switch) {
        (Some(Errno::PERM), Some("2")) => {
            "io_uring is switched off on this machine: run `sysctl kernel.io_uring_disabled=0`".to_owned()
        }
        (Some(Errno::PERM), Some("1")) => {
            "io_uring is open to one group only: run `sysctl kernel.io_uring_disabled=0`, or put this user into the group of kernel.io_uring_group".to_owned()
        }
        (Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS), _) => {
            "io_uring is refused, most likely by a container's seccomp profile: allow io_uring_setup, io_uring_enter and io_uring_register in it (docker: --security-opt seccomp=PROFILE)".to_owned()
        }
        (Some(Errno::NOMEM), _) => {
            "io_uring gets no memory: raise the limit of locked memory (`ulimit -l 8192`, or LimitMEMLOCK=8M in the systemd unit)".to_owned()
        }
        (Some(Errno::MFILE | Errno::NFILE), _) => {
            "io_uring gets no file descriptor: raise the limit (`ulimit -n 65536`, or LimitNOFILE=65536 in the systemd unit)".to_owned()
        }
        (Some(Errno::INVAL), _) => {
            "this kernel's io_uring lacks what pgmux uses (SINGLE_ISSUER, COOP_TASKRUN, DEFER_TASKRUN): boot Linux 6.1 or newer".to_owned()
        }
        _ => format!("io_uring does not start ({error}): check kernel.io_uring_disabled and the seccomp profile"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity;

    #[test]
    fn kernels_from_6_1_on_are_accepted() {
        for release in ["6.1", "6.1.0-18-amd64", "6.18.2", "7.0.0", "10.2-custom"] {
            assert_eq!(version(release), None, "{release}");
        }
        for release in ["6.0.19", "5.15.0-generic", "4.19"] {
            let finding = version(release).unwrap();
            assert_eq!(finding.severity, Severity::Refuse);
            assert!(
                finding.text.contains(release) && finding.text.contains("6.1"),
                "{}",
                finding.text
            );
        }
    }

    #[test]
    fn an_unreadable_version_is_left_to_the_ring_itself() {
        for release in ["", "linux", "6"] {
            assert_eq!(
                version(release).unwrap().severity,
                Severity::Warn,
                "{release}"
            );
        }
    }

    #[test]
    fn each_way_in_which_a_ring_can_fail_names_its_mend() {
        let table = [
            (Errno::PERM, Some("2"), "sysctl kernel.io_uring_disabled=0"),
            (Errno::PERM, Some("1"), "kernel.io_uring_group"),
            (Errno::PERM, Some("0"), "seccomp"),
            (Errno::PERM, None, "seccomp"),
            (Errno::NOSYS, None, "seccomp"),
            (Errno::NOMEM, None, "LimitMEMLOCK"),
            (Errno::MFILE, None, "LimitNOFILE"),
            (Errno::INVAL, None, "6.1"),
            (Errno::FAULT, None, "does not start"),
        ];
        for (errno, switch, mend) in table {
            let text = explain(&errno.into(), switch);
            assert!(text.contains(mend), "{errno:?} {switch:?}: {text}");
        }
    }
}
