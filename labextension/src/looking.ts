/** What is asked of the broker only when somebody looks at one job: it is not in the stream. */
import * as React from 'react';

import type { Api } from './api';

/** Who answers. */
export type Look = Pick<Api, 'workload' | 'progress' | 'attempts'>;

/** Whom the parts of the panel ask; null where there is nobody. */
export const Looking = React.createContext<Look | null>(null);
