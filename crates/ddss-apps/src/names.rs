//! Names of the values of an enum, as a command line spells them.

macro_rules! names {
    ($type:ident, $what:literal, $($value:ident = $name:literal),+) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$value => $name),+ })
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                match name {
                    $($name => Ok(Self::$value),)+
                    _ => Err(format!("no {} is called {name}; there are: {}", $what, [$($name),+].join(", "))),
                }
            }
        }
    };
}

pub(crate) use names;
