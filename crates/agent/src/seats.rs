//! Seats for connections: so many in all, so many for one address, so that peers that connect and say
//! nothing do not keep others out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All seats.
#[derive(Clone, Debug)]
pub struct Seats {
    free: Arc<Semaphore>,
    taken: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    of_one: usize,
}

/// A seat for whoever comes next.
#[derive(Debug)]
pub struct FreeSeat(OwnedSemaphorePermit);

/// A seat that a connection has; free again when dropped.
#[derive(Debug)]
pub struct Seat {
    address: IpAddr,
    seats: Seats,
    _permit: OwnedSemaphorePermit,
}

impl Seats {
    /// * `all` — connections at once; more wait in the kernel's queue.
    /// * `of_one` — connections at once of one address; more are closed at once.
    pub fn new(all: usize, of_one: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(all)), taken: Arc::default(), of_one }
    }

    /// Waits for a seat to be free; `None` would mean that seats have been done away with.
    pub async fn free(&self) -> Option<FreeSeat> {
        Arc::clone(&self.free).acquire_owned().await.ok().map(FreeSeat)
    }

    /// Gives a seat to a peer; `None` if its address has as many as one may have.
    pub fn give(&self, FreeSeat(permit): FreeSeat, peer: IpAddr) -> Option<Seat> {
        let address = one(peer);
        let mut taken = self.taken();
        let of_address = taken.entry(address).or_default();
        if *of_address >= self.of_one {
            return None;
        }
        *of_address += 1;
        Some(Seat { address, seats: self.clone(), _permit: permit })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// What counts as one address: of IPv6 a network of 64 bits, which is what one host gets.
fn one(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            std::net::Ipv6Addr::from(network).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEATS: usize = 64;
    const SEATS_OF_ONE: usize = 16;

    fn give(seats: &Seats, peer: &str) -> Option<Seat> {
        let permit = Arc::clone(&seats.free).try_acquire_owned().ok()?;
        seats.give(FreeSeat(permit), peer.parse().unwrap())
    }

    #[test]
    fn one_address_does_not_take_all_seats() {
        let seats = Seats::new(SEATS, SEATS_OF_ONE);
        let mut mine: Vec<Seat> = (0..SEATS).map_while(|_| give(&seats, "10.0.0.1")).collect();
        assert_eq!(mine.len(), SEATS_OF_ONE);
        assert!(give(&seats, "::ffff:10.0.0.1").is_none(), "the same in another spelling");
        assert!(give(&seats, "10.0.0.2").is_some());
        mine.pop();
        assert!(give(&seats, "10.0.0.1").is_some(), "a seat that was left is free again");
    }

    #[test]
    fn a_host_has_many_ipv6_addresses_and_they_count_as_one() {
        let seats = Seats::new(SEATS, SEATS_OF_ONE);
        let address = |host: usize| format!("2001:db8:0:1::{host:x}");
        let mine: Vec<Seat> = (0..SEATS).map_while(|host| give(&seats, &address(host))).collect();
        assert_eq!(mine.len(), SEATS_OF_ONE);
        assert!(give(&seats, "2001:db8:0:2::1").is_some());
    }

    #[test]
    fn there_are_so_many_in_all_and_the_books_are_empty_in_the_end() {
        let seats = Seats::new(SEATS, SEATS_OF_ONE);
        let all: Vec<Seat> =
            (0..).map_while(|host| give(&seats, &format!("10.0.0.{}", host % 250))).collect();
        assert_eq!(all.len(), SEATS);
        drop(all);
        assert!(seats.taken().is_empty());
    }
}
