from fedrepro.warm import main

raise SystemExit(main())
