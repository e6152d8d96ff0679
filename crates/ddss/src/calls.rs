//! The macro that defines a method of the blocking client and its asynchronous twin at once.
//!
//! Both methods have one body, so that neither can differ from the other or be missing. The body marks each call that
//! takes time with `wait!`: the blocking method runs the call, the asynchronous method awaits it. Where a name, the
//! parameters or the result differ, the asynchronous form stands behind a `|`.
//!
//! ```text
//! calls! {
//!     impl Client, AsyncClient {
//!         /// Documentation of the blocking method.
//!         pub async fn open(&self, name: &str) -> Result<Segment, Error> | Result<AsyncSegment, Error> {
//!             let opened = wait!(self.run(self.time(), plan))?;
//!             ...
//! ```
//!
//! A block of functions without `async` defines methods that take no time, on both types.

macro_rules! calls {
    (impl $({$($generics:tt)*})? $blocking:ty, $tasks:ty {
        $(
            $(#[$meta:meta])*
            $vis:vis async fn $name:ident $(| $other_name:ident)? $(<$type:ident: $bound:ident>)?
                ($($arguments:tt)*) $(| ($($other_arguments:tt)*))? -> $result:ty $(| $other_result:ty)? $body:block
        )*
    }) => {
        impl $(<$($generics)*>)? $blocking {
            $(
                $(#[$meta])*
                $vis fn $name $(<$type: $bound>)? ($($arguments)*) -> $result {
                    #[allow(unused_imports, reason = "a body may only use methods that wait")]
                    use crate::calls::run_now as wait;
                    $body
                }
            )*
        }

        impl $(<$($generics)*>)? $tasks {
            $(
                crate::calls::task_method! {
                    {
                        #[doc = crate::calls::task_doc!($blocking, $name)]
                        $vis async
                    }
                    [$name $($other_name)?] {$(<$type: $bound>)?}
                    [($($arguments)*) $(($($other_arguments)*))?] [$result $(| $other_result)?]
                    {
                        #[allow(unused_imports, reason = "a body may only use methods that wait")]
                        use crate::calls::run_later as wait;
                        $body
                    }
                }
            )*
        }
    };
    (impl $({$($generics:tt)*})? $blocking:ty, $tasks:ty {
        $(
            $(#[$meta:meta])*
            $vis:vis fn $name:ident $(| $other_name:ident)? ($($arguments:tt)*) $(| ($($other_arguments:tt)*))?
                -> $result:ty $(| $other_result:ty)? $body:block
        )*
    }) => {
        impl $(<$($generics)*>)? $blocking {
            $( $(#[$meta])* $vis fn $name ($($arguments)*) -> $result $body )*
        }

        impl $(<$($generics)*>)? $tasks {
            $(
                crate::calls::task_method! {
                    {
                        #[doc = crate::calls::task_doc!($blocking, $name)]
                        $vis
                    }
                    [$name $($other_name)?] {}
                    [($($arguments)*) $(($($other_arguments)*))?] [$result $(| $other_result)?]
                    $body
                }
            )*
        }
    };
}

/// The documentation of an asynchronous method: a link to the blocking one.
macro_rules! task_doc {
    ($blocking:ty, $name:ident) => {
        concat!("[`", stringify!($blocking), "::", stringify!($name), "`] for tasks.")
    };
}

/// Emits the asynchronous method: of each two forms the second one.
macro_rules! task_method {
    ({ $($head:tt)* } [$name:ident] { $($types:tt)* } [($($arguments:tt)*)] [$result:ty] $body:block) => {
        $($head)* fn $name $($types)* ($($arguments)*) -> $result $body
    };
    ($head:tt [$name:ident $other:ident] $types:tt $arguments:tt $result:tt $body:block) => {
        crate::calls::task_method! { $head [$other] $types $arguments $result $body }
    };
    ($head:tt $name:tt $types:tt [$arguments:tt $other:tt] $result:tt $body:block) => {
        crate::calls::task_method! { $head $name $types [$other] $result $body }
    };
    ($head:tt $name:tt $types:tt $arguments:tt [$result:ty | $other:ty] $body:block) => {
        crate::calls::task_method! { $head $name $types $arguments [$other] $body }
    };
}

/// The `wait!` of a blocking method: the call has run when its expression returns.
macro_rules! run_now {
    ($call:expr) => {
        $call
    };
}

/// The `wait!` of an asynchronous method.
macro_rules! run_later {
    ($call:expr) => {
        $call.await
    };
}

pub(crate) use {calls, run_later, run_now, task_doc, task_method};
