//! Joining and leaving.

use crate::error::SpaceError;
use crate::space::{Space, SpaceOptions};
use ddss::Client;

impl Space {
    /// Joins a space by name, and makes it if it does not exist. Waits until all ranks are there.
    ///
    /// ```no_run
    /// use ddss_dsm::{Homes, Space, SpaceOptions};
    /// let client = ddss::Client::connect()?;
    /// let mut space = Space::join(&client, "solver", SpaceOptions::new(2, 1 << 20))?;
    /// let results = space.region::<u64>("results", 2, Homes::FirstTouch)?;
    /// results.put(&space, space.rank().into(), 7)?;
    /// space.barrier()?;
    /// println!("{:?}", results.read(&space, ..)?);
    /// space.leave()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The directory cannot be joined, the settings differ, or ranks are missing at the deadline.
    pub fn join(client: &Client, name: &str, options: SpaceOptions) -> Result<Self, SpaceError> {
        let mut space = Self::start(client, name, options)?;
        match space.restore() {
            Ok(()) => Ok(space),
            Err(error) => {
                // It is the same at all ranks. They leave together: none takes the end of another one for the reason.
                if space.await_leave().is_ok() {
                    let _ = space.end();
                }
                Err(error)
            }
        }
    }

    /// Leaves the space together with all other ranks, and removes its checkpoints: the program has its result.
    ///
    /// # Errors
    /// A rank is lost, or does not leave in time.
    pub fn leave(self) -> Result<(), SpaceError> {
        // At the first barrier a rank may have to read the logs of others, at the second one none does. No rank has ended while
        // a checkpoint of its result lives.
        self.await_leave()?;
        let released = if self.rank() == 0 { self.checkpoints.release(self.ranks()) } else { Ok(()) };
        self.await_leave()?;
        self.end()?;
        released
    }
}
