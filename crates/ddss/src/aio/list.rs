//! The listing for tasks.

use super::Client;
use crate::error::Error;
use crate::plan::listing::ListCursor;
use crate::segment_info::SegmentInfo;

impl Client {
    /// Lists all segments whose names begin with `prefix`: [`Client::list`]. Each page has the timeout of one call.
    pub async fn list(&self, prefix: &str) -> Result<Vec<SegmentInfo>, Error> {
        let (mut all, mut cursor) = (Vec::new(), ListCursor::new(prefix)?);
        for shard in 0..self.blocking().shard_count() {
            let client = self.at_shard(shard)?;
            while let Some(found) = client.next_page(&mut cursor).await? {
                all.extend(found.iter().map(SegmentInfo::of));
            }
            cursor.restart();
        }
        Ok(all)
    }
}
