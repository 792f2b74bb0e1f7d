//! Hosts: what a log says of where its processes ran, and process ids that are not confused across them.

use crate::build::Life;
use rustc_hash::{FxHashMap, FxHashSet};
use simpler_record_format::percent_decode;

/// A space of process ids: a machine from boot to boot, or a container on one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its number in the log.
    pub id: u64,
    /// Its name, decoded; bytes that are not UTF-8 become U+FFFD.
    pub name: Box<str>,
}

/// Far above any process id, and easy to take off again for who reads the number.
const TRACK_PID_STEP: u64 = 10_000_000;

/// Takes note of a host; the first name that it is given stays.
pub(crate) fn note(hosts: &mut Vec<Host>, id: u64, name: &[u8]) {
    if hosts.iter().any(|host| host.id == id) {
        return;
    }
    let name: Vec<u8> = percent_decode(name).collect();
    hosts.push(Host { id, name: String::from_utf8_lossy(&name).into() });
}

/// What a host is called where there are several: its name, and its number where another one has that name too.
pub(crate) fn label(hosts: &[Host], id: u64) -> Option<String> {
    let [_, _, ..] = hosts else { return None };
    let host = hosts.iter().find(|host| host.id == id)?;
    let shared = hosts.iter().any(|other| other.id != id && other.name == host.name);
    Some(if shared { format!("{} {id:016x}", host.name) } else { host.name.to_string() })
}

/// For each life its process id, or another number where a process of another host has that one and comes first. A life
/// of which no host is known counts as one of a host of its own.
pub(crate) fn track_pids(lives: &[Life]) -> Vec<u64> {
    let mut taken: FxHashSet<u64> = lives.iter().map(|life| life.pid).collect();
    let mut first: FxHashMap<u64, Option<u64>> = FxHashMap::default();
    let mut moved: FxHashMap<(u64, Option<u64>), u64> = FxHashMap::default();
    let of = |life: &Life| {
        if *first.entry(life.pid).or_insert(life.host) == life.host {
            return life.pid;
        }
        *moved.entry((life.pid, life.host)).or_insert_with(|| {
            let mut number = life.pid.wrapping_add(TRACK_PID_STEP);
            while !taken.insert(number) {
                number = number.wrapping_add(TRACK_PID_STEP);
            }
            number
        })
    };
    lives.iter().map(of).collect()
}
