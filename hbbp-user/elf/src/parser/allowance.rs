//! What may be spent on the files of one user, and of all users: a user has as many files as he likes.
//!
//! The time spent is forgiven at the rate of a part of a CPU, so that no user is refused for ever.

use std::collections::HashMap;
use std::time::Duration;

use super::worker::Spent;

/// CPU time that may be spent at once on the files of a user, and of all users. The libraries and programs of a busy desktop
/// take a tenth of it.
const USER: Duration = Duration::from_secs(4);
const ALL: Duration = Duration::from_secs(8);

/// The part of the time that passes which may be spent for ever, as its denominator.
const USER_PART: u32 = 50;
const ALL_PART: u32 = 25;

/// Bytes that are read in the time that a second of CPU time is: more of them come from a disk.
const READ_PER_SECOND: f64 = 1e9;

/// Users that are remembered; beyond that all are forgotten that have spent nothing lately.
const MAX_USERS: usize = 4096;

/// What was spent, by user.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    all: Account,
    users: HashMap<u32, Account>,
}

/// What was spent and not yet forgiven, and when it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    spent: Duration,
    at: Duration,
}

impl Account {
    fn spent(&self, now: Duration, part: u32) -> Duration {
        self.spent.saturating_sub(now.saturating_sub(self.at) / part)
    }

    fn charge(&mut self, more: Duration, now: Duration, part: u32) {
        self.spent = self.spent(now, part).saturating_add(more);
        self.at = now;
    }
}

impl Allowance {
    /// Whether another file of a user may be parsed at a time.
    pub(super) fn allows(&self, user: u32, now: Duration) -> bool {
        self.spent(user, now) < USER && self.all.spent(now, ALL_PART) < ALL
    }

    /// What was spent lately on the files of a user.
    pub(super) fn spent(&self, user: u32, now: Duration) -> Duration {
        let account = self.users.get(&user);
        account.map_or(Duration::ZERO, |account| account.spent(now, USER_PART))
    }

    /// Notes what parsing a file of a user took.
    pub(super) fn charge(&mut self, user: u32, spent: Spent, now: Duration) {
        let reading = Duration::from_secs_f64(spent.read as f64 / READ_PER_SECOND);
        let spent = spent.cpu.max(reading);
        if MAX_USERS <= self.users.len() {
            self.users
                .retain(|_, account| !account.spent(now, USER_PART).is_zero());
        }
        self.users.entry(user).or_default().charge(spent, now, USER_PART);
        self.all.charge(spent, now, ALL_PART);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(cpu: u64) -> Spent {
        Spent {
            cpu: Duration::from_secs(cpu),
            read: 0,
        }
    }

    #[test]
    fn one_user_takes_his_own_part_and_gets_more_with_time() {
        let mut allowance = Allowance::default();
        let now = Duration::from_secs(1000);
        for _ in 0..USER.as_secs() {
            assert!(allowance.allows(7, now));
            allowance.charge(7, second(1), now);
        }
        assert!(!allowance.allows(7, now));
        assert!(allowance.allows(8, now), "others are not concerned");
        let later = now + Duration::from_secs(1);
        assert!(allowance.allows(7, later));
        allowance.charge(7, second(1), later);
        assert!(!allowance.allows(7, later + Duration::from_secs(u64::from(USER_PART) / 2)));
        assert!(allowance.allows(7, later + Duration::from_secs(u64::from(USER_PART) + 1)));
    }

    #[test]
    fn many_users_take_no_more_than_all_may() {
        let mut allowance = Allowance::default();
        let now = Duration::from_secs(1);
        let served = (0..100).filter(|user| {
            let allowed = allowance.allows(*user, now);
            if allowed {
                allowance.charge(*user, second(1), now);
            }
            allowed
        });
        assert_eq!(served.count() as u64, ALL.as_secs());
    }

    #[test]
    fn what_is_read_counts_as_time() {
        let mut allowance = Allowance::default();
        let read = Spent {
            cpu: Duration::ZERO,
            read: 8 << 30,
        };
        allowance.charge(7, read, Duration::from_secs(1));
        assert!(!allowance.allows(7, Duration::from_secs(1)));
    }
}
