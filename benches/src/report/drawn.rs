//! The drawn figures as a file: all data of the pictures and their page, to draw them again without measuring.

use serde::{Deserialize, Serialize};

use super::picture::Picture;

/// Figures, with the machine on which they were measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drawn {
    /// Description of the machine.
    pub machine: String,
    /// In the order of the page.
    pub pictures: Vec<Picture>,
}

impl Drawn {
    /// Formats JSON with a line for each figure.
    ///
    /// # Errors
    /// A number is not finite.
    pub fn to_text(&self) -> serde_json::Result<String> {
        let pictures: serde_json::Result<Vec<String>> = self.pictures.iter().map(serde_json::to_string).collect();
        let machine = serde_json::to_string(&self.machine)?;
        Ok(format!("{{\"machine\":{machine},\"pictures\":[\n{}\n]}}\n", pictures?.join(",\n")))
    }

    /// Replaces figures by those of the same id in `others`, and adds the rest of `others`.
    #[must_use]
    pub fn with(mut self, others: Vec<Picture>) -> Drawn {
        for other in others {
            match self.pictures.iter_mut().find(|picture| picture.id == other.id) {
                Some(picture) => *picture = other,
                None => self.pictures.push(other),
            }
        }
        self
    }

    /// Reads what `to_text` wrote.
    ///
    /// # Errors
    /// The text is no list of figures.
    pub fn parse(text: &str) -> serde_json::Result<Drawn> {
        serde_json::from_str(text)
    }
}
